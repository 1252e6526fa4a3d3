import { Page } from "../../components/page";

export function Projects() {
  return <Page title="Projects">Soon.</Page>;
}
