import { ErrorNotice, Loading } from "./notice";
import { Page } from "./page";

/** A page whose one thing is not there yet, or cannot be had: it has its heading all the same. */
export function Pending({
  title,
  query,
}: {
  title: string;
  query: { error: unknown; refetch: () => unknown };
}) {
  return (
    <Page title={title}>
      {query.error ? <ErrorNotice error={query.error} retry={() => void query.refetch()} /> : <Loading />}
    </Page>
  );
}
