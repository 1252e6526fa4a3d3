import { Page } from "../../components/page";

export function Members() {
  return <Page title="Members">Soon.</Page>;
}
