/** Why the provider of identities opened nothing: by the codes that the gateway sends a browser back with. */
const SENTENCES = new Map([
  ["oidc_denied", "The provider did not let you in."],
  ["oidc_expired", "That sign-in took too long, or was begun in another window. Try again."],
  ["oidc_failed", "The provider's answer proves nothing of you. Try again."],
  ["oidc_unavailable", "The provider does not answer. Try again in a moment."],
  [
    "oidc_no_member",
    "You are signed in at the provider, but are no member of an organization here. Ask an administrator.",
  ],
  ["oidc_no_role", "None of your groups at the provider has a role here. Ask an administrator."],
  ["oidc_no_organization", "Your group's organization is not here. Ask the operator of the deployment."],
  [
    "oidc_other_person",
    "Somebody else at the provider has this address's account. Ask the operator of the deployment.",
  ],
  ["tenant_disabled", "You or your organization are disabled here."],
]);

/** The sentence for a code; a link may say anything, so that what is no code is not repeated on our page. */
export function refusalOf(code: string | null): string | null {
  if (code === null) return null;
  const named = /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : "";
  return (
    SENTENCES.get(code) ??
    `Signing in by the provider was refused${named}. Try again, or ask an administrator.`
  );
}
