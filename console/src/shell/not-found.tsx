import { Link } from "@tanstack/react-router";
import { Empty } from "../components/notice";

export function NotFound() {
  return (
    <main className="entry">
      <Empty
        title="There is no such page"
        action={
          <Link to="/" className="button">
            To the overview
          </Link>
        }
      >
        The address may have been copied in part, or the page may have moved.
      </Empty>
    </main>
  );
}
