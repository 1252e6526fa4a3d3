import { Page } from "../../components/page";

export function Home() {
  return <Page title="Home">Soon.</Page>;
}
