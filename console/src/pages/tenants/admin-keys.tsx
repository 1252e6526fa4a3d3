import { Page } from "../../components/page";

export function AdminKeys() {
  return <Page title="AdminKeys">Soon.</Page>;
}
