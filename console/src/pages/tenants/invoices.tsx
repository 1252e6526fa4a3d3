import { Page } from "../../components/page";

export function Invoices() {
  return <Page title="Invoices">Soon.</Page>;
}
