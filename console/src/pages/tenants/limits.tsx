import { Page } from "../../components/page";

export function LimitsPage() {
  return <Page title="LimitsPage">Soon.</Page>;
}
