import { Page } from "../../components/page";

export function Requests() {
  return <Page title="Requests">Soon.</Page>;
}
