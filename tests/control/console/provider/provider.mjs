// A provider of identities: `oidc-provider`, certified by the OpenID Foundation, with people of the test's own.
//
// argv: the redirect URI, the port or 0, and JSON of people by name: {"ada": {"email": …, "email_verified": …, "groups": […]}}.
// Says its issuer as the first line, when it listens. `as=NAME` behind the address of its question answers it.
import http from "node:http";
import Provider from "oidc-provider";

const [redirectUri, port, people] = [process.argv[2], Number(process.argv[3]), JSON.parse(process.argv[4])];
const server = http.createServer((request, response) => handle(request, response));
server.listen(port, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "slipstream",
        client_secret: "of-the-test",
        redirect_uris: [redirectUri],
        grant_types: ["authorization_code"],
        response_types: ["code"],
      },
    ],
    pkce: { required: () => true },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    cookies: { keys: ["of-the-test"] },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_context, interaction) => `/ask/${interaction.uid}` },
    findAccount: (_context, name) => ({ accountId: name, claims: () => ({ sub: name, ...people[name] }) }),
    async loadExistingGrant(context) {
      const grant = new context.oidc.provider.Grant({
        accountId: context.oidc.session.accountId,
        clientId: context.oidc.client.clientId,
      });
      grant.addOIDCScope("openid email profile");
      await grant.save();
      return grant;
    },
  });
  const callback = provider.callback();
  handle = async (request, response) => {
    const asked = /^\/ask\/[^?]+\?as=(.+)$/.exec(request.url);
    if (asked === null) return callback(request, response);
    const login = asked[1] === "nobody" ? { error: "access_denied" } : { login: { accountId: asked[1] } };
    await provider.interactionFinished(request, response, login, { mergeWithLastSubmission: false });
  };
  console.log(issuer);
});
let handle = () => {};
