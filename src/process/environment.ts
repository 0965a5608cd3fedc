/** Environment variables by name. */
export type EnvironmentVariables = Readonly<Record<string, string | undefined>>;

/** The variables that every server inherits. All others may hold secrets. */
const SAFE_VARIABLES = new Set(
  (
    "PATH HOME USER LOGNAME SHELL TERM LANG TZ TMPDIR " +
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy " +
    "SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE"
  ).split(" "),
);
const SAFE_VARIABLE_PREFIX = /^(LC|XDG)_/;
/** Variables that change how a Bun executable starts, including what code it runs. */
const BLOCKED_VARIABLES = /^BUN_/;

/**
 * A server's complete environment: the safe variables of the hub, then the manifest's, then `extra`; later ones win.
 * `BUN_*` is never passed on.
 */
export function childEnvironment(
  hubEnv: EnvironmentVariables,
  manifestEnv: EnvironmentVariables,
  extra: EnvironmentVariables,
): Record<string, string> {
  const inherited = Object.entries(hubEnv).filter(
    ([name]) => SAFE_VARIABLES.has(name) || SAFE_VARIABLE_PREFIX.test(name),
  );
  const all = [...inherited, ...Object.entries(manifestEnv), ...Object.entries(extra)];
  return Object.fromEntries(
    all.filter(
      (entry): entry is [string, string] =>
        !BLOCKED_VARIABLES.test(entry[0]) && entry[1] !== undefined,
    ),
  );
}
