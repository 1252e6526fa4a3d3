import { Link } from "@tanstack/react-router";
import { Empty } from "../components/notice";

export function NotFound() {
  return (
    <main className="entry">
      <Empty
        title="Page not found"
        action={
          <Link to="/" className="button">
            Open the overview
          </Link>
        }
      >
        The address may be incomplete, or the page may have moved.
      </Empty>
    </main>
  );
}
