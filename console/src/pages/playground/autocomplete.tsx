import { Page } from "../../components/page";

export function AutocompletePlayground() {
  return <Page title="AutocompletePlayground">Soon.</Page>;
}
