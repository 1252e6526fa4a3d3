import { Page } from "../../components/page";

export function ServiceAccounts() {
  return <Page title="ServiceAccounts">Soon.</Page>;
}
