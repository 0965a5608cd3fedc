/** Environment variables by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The variables that every server inherits. All others may hold secrets. */
const SAFE = new Set(
  (
    "PATH HOME USER LOGNAME SHELL TERM LANG TZ TMPDIR " +
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy " +
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
  ).split(" "),
);
const SAFE_PREFIX = /^(LC|XDG)_/;
/** Variables that change how a Bun executable starts, including what code it runs. */
const NEVER = /^BUN_/;

/**
 * A server's complete environment: the safe variables of the hub, then the manifest's, then `extra`; later ones win.
 * `BUN_*` is never passed on.
 */
export function childEnvironment(
  hub: Environment,
  own: Environment,
  extra: Environment,
): Record<string, string> {
  const inherited = Object.entries(hub).filter(
    ([name]) => SAFE.has(name) || SAFE_PREFIX.test(name),
  );
  const all = [...inherited, ...Object.entries(own), ...Object.entries(extra)];
  return Object.fromEntries(
    all.filter(
      (entry): entry is [string, string] => !NEVER.test(entry[0]) && entry[1] !== undefined,
    ),
  );
}
