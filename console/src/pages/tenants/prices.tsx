import { Page } from "../../components/page";

export function Prices() {
  return <Page title="Prices">Soon.</Page>;
}
