import type { OAuthSettings } from "../manifest/remote.ts";
import { unauthorizedError } from "./errors.ts";
import { clientInformationOf, type ClientRegistration } from "./registration.ts";
import { type ClientProof, loadSdk } from "./sdk.ts";

/**
 * How a client says who it is, and proves it: with the manifest's private key, or with its secret, or not at all.
 * @throws {HubError} unauthorized if the key cannot be used
 */
export async function clientAuthenticationOf(
  client: ClientRegistration,
  settings: OAuthSettings,
  methods: readonly string[] | undefined,
  server: string,
): Promise<ClientProof> {
  const { privateKey } = settings;
  if (client.kind === "configured" && privateKey !== undefined) {
    return proveByKey(client.id, privateKey, settings.keyAlgorithm, server);
  }
  const { selectClientAuthMethod } = await loadSdk();
  const information = clientInformationOf(client, settings);
  const { client_id: id, client_secret: secret } = information;
  const method = selectClientAuthMethod(information, [...(methods ?? [])]);
  return (headers, body) => {
    if (method === "client_secret_basic" && secret !== undefined) {
      const pair = new TextEncoder().encode(`${encode(id)}:${encode(secret)}`);
      headers.set("authorization", `Basic ${btoa(String.fromCodePoint(...pair))}`);
      return;
    }
    body.set("client_id", id);
    if (method === "client_secret_post" && secret !== undefined) body.set("client_secret", secret);
  };
}

/** As in forms (RFC 6749, 2.3.1). */
function encode(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

async function proveByKey(
  id: string,
  text: string,
  algorithm: string | undefined,
  server: string,
): Promise<ClientProof> {
  const { createPrivateKey } = await import("node:crypto");
  let key: ReturnType<typeof createPrivateKey>;
  try {
    key = createPrivateKey(text);
  } catch {
    throw unauthorizedError(server, "oauth.privateKey in the manifest is no private key in PEM");
  }
  const { asymmetricKeyType: kind, asymmetricKeyDetails: details } = key;
  const fitting = (kind === "ec" ? CURVES[details?.namedCurve ?? ""] : KINDS[kind ?? ""]) ?? [];
  const [own] = fitting;
  if (own === undefined) {
    throw unauthorizedError(
      server,
      "oauth.privateKey in the manifest is of a kind that cannot be used",
    );
  }
  const alg = algorithm ?? own;
  if (!fitting.includes(alg)) {
    const why = `oauth.keyAlgorithm in the manifest is none for its oauth.privateKey, which are ${fitting.join(", ")}`;
    throw unauthorizedError(server, why);
  }
  const { createPrivateKeyJwtAuth } = await loadSdk();
  // Whichever form it was written in.
  const privateKey = key.export({ type: "pkcs8", format: "pem" });
  return createPrivateKeyJwtAuth({ issuer: id, subject: id, privateKey, alg });
}

/** Best first. */
type Algorithms = Readonly<Record<string, readonly string[]>>;
const CURVES: Algorithms = {
  prime256v1: ["ES256"],
  secp384r1: ["ES384"],
  secp521r1: ["ES512"],
};
const PSS = ["PS256", "PS384", "PS512"];
const KINDS: Algorithms = { rsa: ["RS256", "RS384", "RS512", ...PSS], "rsa-pss": PSS };
