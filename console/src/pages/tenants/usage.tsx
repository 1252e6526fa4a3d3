import { Page } from "../../components/page";

export function Usage() {
  return <Page title="Usage">Soon.</Page>;
}
