import { Page } from "../../components/page";

export function WebhookPage() {
  return <Page title="WebhookPage">Soon.</Page>;
}
