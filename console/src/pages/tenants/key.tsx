import { Page } from "../../components/page";

export function KeyPage() {
  return <Page title="KeyPage">Soon.</Page>;
}
