import type { HttpToken } from "../manifest/schema.ts";
import { resolveToken, type Schemes } from "../manifest/secrets.ts";
import { isLoopback } from "../frontend/http/loopback.ts";
import type { Invocation, World } from "./command.ts";
import { usage } from "./parse.ts";

/** Where the HTTP face is to be, and what its clients have to know. */
export interface Address {
  /** As URLs spell it: IPv6 addresses have brackets. */
  readonly hostname: string;
  readonly port: number;
  readonly token: string | undefined;
}

/** Only this machine reaches it there. */
const DEFAULT_HOST = "127.0.0.1";

/** What the command line asks for; undefined: no HTTP. @throws {HubError} usage */
export function readAddress(
  { http, httpTokenEnv }: Invocation,
  { env }: Pick<World, "env">,
): Address | undefined {
  if (http === undefined) {
    if (httpTokenEnv === undefined) return undefined;
    throw usage("--http-token-env says who may come over HTTP: it needs --http.");
  }
  const [, host = DEFAULT_HOST, digits = ""] = /^(?:(.+):)?(\d{1,5})$/.exec(http) ?? [];
  const port = Number(digits);
  const url = `http://${host}`;
  const hostname =
    /^[\w.-]+$|^\[[\da-f:.]+\]$/i.test(host) && URL.canParse(url) && new URL(url).hostname;
  if (digits === "" || port > 65_535 || !hostname) {
    throw usage(`--http is HOST:PORT, as in 127.0.0.1:8700, not "${http}".`);
  }
  const token = httpTokenEnv === undefined ? undefined : env[httpTokenEnv];
  if (httpTokenEnv !== undefined && !token) {
    throw usage(`The variable ${httpTokenEnv} that --http-token-env names is empty.`);
  }
  return { hostname, port, token };
}

/** The same with the manifest's token, if the command line has named none. @throws {HubError} usage if others could come without */
export async function closeAddress(
  { hostname, port, token: named }: Address,
  httpToken: HttpToken | undefined,
  { env, platform }: Pick<World, "env" | "platform">,
): Promise<Address> {
  const schemes: Schemes = new Map([
    [
      "secret",
      async (name) =>
        (await import("../secrets/secrets.ts")).openSecrets({ env, platform }).require(name),
    ],
  ]);
  const token = named ?? (httpToken && (await resolveToken(httpToken, env, schemes)));
  if (token === undefined && !isLoopback(hostname)) {
    throw usage(
      `Other machines can reach ${hostname}: name a variable with a bearer token (--http-token-env NAME, or hub.httpToken = "\${env:NAME}"), or listen on ${DEFAULT_HOST}.`,
    );
  }
  if (token !== undefined && !BEARABLE.test(token)) {
    const place = named === undefined ? "hub.httpToken" : "--http-token-env";
    throw usage(
      `The token of ${place} cannot be borne: it is empty, or has spaces, line ends or characters that are not ASCII.`,
    );
  }
  return { hostname, port, token };
}
/** What a header can hold, and the face takes from it. */
const BEARABLE = /^[\x21-\x7e]+$/;
