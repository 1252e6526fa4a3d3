import { Page } from "../../components/page";

export function RequestPage() {
  return <Page title="RequestPage">Soon.</Page>;
}
