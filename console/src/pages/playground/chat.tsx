import { Page } from "../../components/page";

export function ChatPlayground() {
  return <Page title="ChatPlayground">Soon.</Page>;
}
