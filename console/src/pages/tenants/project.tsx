import { Page } from "../../components/page";

export function ProjectPage() {
  return <Page title="ProjectPage">Soon.</Page>;
}
