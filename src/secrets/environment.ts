import type { Env } from "../base/paths.ts";

/** The variable that a secret's name stands for: `linear/token` is TOOLMUX_SECRET_LINEAR_TOKEN. */
export function secretVariableOf(name: string): string {
  return `TOOLMUX_SECRET_${name.toUpperCase().replace(/[^A-Z0-9]/g, "_")}`;
}

/** What the environment holds for a secret, under its very name or that of its variable; nothing if that is empty. */
export function readSecretVariable(env: Env, name: string): string | undefined {
  return env[name] || env[secretVariableOf(name)] || undefined;
}
