import { Page } from "../../components/page";

export function Webhooks() {
  return <Page title="Webhooks">Soon.</Page>;
}
