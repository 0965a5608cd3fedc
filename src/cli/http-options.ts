import { usageError } from "../base/errors.ts";
import type { SystemEnvironment } from "../base/paths.ts";
import { DEFAULT_HOST, type HttpAddress } from "../host/http-address.ts";

/** The command line's options for serving over HTTP. */
export interface HttpOptions {
  readonly http: string | undefined;
  readonly "http-token-env"?: string | undefined;
  readonly token?: string | undefined;
}

/** The address that the command line names; undefined if it asks for no HTTP. @throws {HubError} usage */
export function readHttpAddress(
  { http, "http-token-env": httpTokenEnv, token: tokenOption }: HttpOptions,
  { env }: Pick<SystemEnvironment, "env">,
): HttpAddress | undefined {
  const isAuto = tokenOption !== undefined;
  if (http === undefined) {
    if (httpTokenEnv === undefined && !isAuto) return undefined;
    const option = isAuto ? "--token" : "--http-token-env";
    throw usageError(`${option} sets the token for HTTP clients: it needs --http.`);
  }
  if (isAuto && tokenOption !== "auto") {
    throw usageError(
      "--token accepts only auto: other processes can read a token on the command line. Use --http-token-env NAME.",
    );
  }
  if (isAuto && httpTokenEnv !== undefined) {
    throw usageError("--token and --http-token-env both set the token: use only one of them.");
  }
  const [, host = DEFAULT_HOST, digits = ""] = /^(?:(.+):)?(\d{1,5})$/.exec(http) ?? [];
  const port = Number(digits);
  const url = `http://${host}`;
  const hostname =
    /^[\w.-]+$|^\[[\da-f:.]+\]$/i.test(host) && URL.canParse(url) && new URL(url).hostname;
  if (digits === "" || port > 65_535 || !hostname) {
    throw usageError(`--http needs HOST:PORT, such as 127.0.0.1:8700; "${http}" is not valid.`);
  }
  const token = httpTokenEnv === undefined ? undefined : env[httpTokenEnv];
  if (httpTokenEnv !== undefined && !token) {
    throw usageError(
      `--http-token-env: the environment variable ${httpTokenEnv} is ${token === undefined ? "not set" : "empty"}.`,
    );
  }
  return { hostname, port, token, ...(isAuto && { isAuto }) };
}
