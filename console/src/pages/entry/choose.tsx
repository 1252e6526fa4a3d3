import { useQuery } from "@tanstack/react-query";
import { chooseOrganization, readChoices } from "../../api/session";
import { useAction } from "../../components/action";
import { Button } from "../../components/button";
import { ErrorNotice, Loading, Refused } from "../../components/notice";
import { useKeepSession } from "../../shell/session";
import { EntryFrame } from "./frame";

/** The page after a sign-in by the identity provider, for a member of several organizations. */
export function ChooseOrganization() {
  const choices = useQuery({ queryKey: ["choices"], queryFn: readChoices, retry: false });
  const keep = useKeepSession();
  const choose = useAction(chooseOrganization, { quiet: true, then: keep });
  if (choices.isPending) return <Loading label="Loading your organizations" />;
  return (
    <EntryFrame title="Choose an organization">
      {choices.error && <ErrorNotice error={choices.error} />}
      {choices.data && <p>You are a member of several organizations. To leave one, open its Account page.</p>}
      {choices.data?.data.map(({ id, name }) => (
        <Button key={id} busy={choose.isPending && choose.variables === id} onClick={() => choose.mutate(id)}>
          {name}
        </Button>
      ))}
      {choose.error && <Refused error={choose.error} />}
      <a href="/console/sign-in">Sign in as another user</a>
    </EntryFrame>
  );
}
