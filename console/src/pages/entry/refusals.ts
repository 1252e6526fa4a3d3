/** Why the provider of identities opened nothing: by the codes that the gateway sends a browser back with. */
const SENTENCES = new Map([
  ["oidc_denied", "The provider refused your sign-in."],
  ["oidc_expired", "That sign-in took too long or began in another window. Try again."],
  ["oidc_failed", "The provider's response does not prove who you are. Try again."],
  ["oidc_unavailable", "The provider does not answer. Try again in a moment."],
  [
    "oidc_no_member",
    "You are signed in at the provider, but you are not a member of any organization here. Ask an administrator.",
  ],
  ["oidc_no_role", "None of your groups at the provider has a role here. Ask an administrator."],
  [
    "oidc_no_organization",
    "Your group's organization does not exist here. Ask the operator of the deployment.",
  ],
  [
    "oidc_other_person",
    "Another user of the provider owns the account with this address. Ask the operator of the deployment.",
  ],
  ["tenant_disabled", "You or your organization is disabled here."],
]);

/** The sentence for a code; a link may say anything, so that what is no code is not repeated on our page. */
export function refusalOf(code: string | null): string | null {
  if (code === null) return null;
  const named = /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : "";
  return (
    SENTENCES.get(code) ??
    `The sign-in through the provider was refused${named}. Try again, or ask an administrator.`
  );
}
