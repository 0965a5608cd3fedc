/** Returns the name of a secret's environment variable: TOOLMUX_SECRET_LINEAR_TOKEN for the secret `linear/token`. */
export function secretVariableOf(name: string): string {
  return `TOOLMUX_SECRET_${name.toUpperCase().replace(/[^A-Z0-9]/g, "_")}`;
}

/** Whether a name is reserved for the hub's own values, such as OAuth tokens. */
export function isReservedName(name: string): boolean {
  return name.startsWith("oauth/");
}
