import { Page } from "../../components/page";

export function Organizations() {
  return <Page title="Organizations">Soon.</Page>;
}
