import { Page } from "../../components/page";

export function Audit() {
  return <Page title="Audit">Soon.</Page>;
}
