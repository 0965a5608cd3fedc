/** What a scenario says beside the URL of its server. */
export type Context = Readonly<Record<string, unknown>>;

/** How the hub is started for one scenario. */
export interface Settings {
  /** Further keys of the server in the manifest. */
  readonly server: Readonly<Record<string, unknown>>;
  /** Further variables of the hub's environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** What the hub has to be given for a scenario of that name. */
export function settingsFor(_scenario: string, _context: Context): Settings {
  return { server: {}, env: {} };
}
