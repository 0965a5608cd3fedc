import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { ServerEntry } from "./manifest.ts";
import { missingPrograms, skipWithout } from "./needs.ts";

const ENVIRONMENT = fileURLToPath(new URL("../../dist/python", import.meta.url));
const PROGRAMS = fileURLToPath(new URL("../python/", import.meta.url));

/** The Python that has what test/python/requirements.txt names. */
export const PYTHON = `${ENVIRONMENT}/bin/python`;

/** Why tests with Python cannot run, for `skip`; false if they can. */
export const NO_PYTHON = skipWithout({
  isMet: existsSync(`${ENVIRONMENT}/.toolmux-setup`) && missingPrograms(["git"]).length === 0,
  tests: "servers and clients in Python",
  cure: "there is no git, or no dist/python (apt-get install git python3 python3-venv; then node scripts/python.mjs)",
});

const ENVIRONMENT_1 = fileURLToPath(new URL("../../dist/python1", import.meta.url));

/** The same with what test/python/requirements1.txt names: the SDK's first major version. */
export const PYTHON_1 = `${ENVIRONMENT_1}/bin/python`;

export const NO_PYTHON_1 = existsSync(`${ENVIRONMENT_1}/.toolmux-setup`)
  ? false
  : "scripts/python.mjs has made no Python environment with the SDK's first version";

/** A module of a package. */
export function module(name: string, args: readonly string[] = []): ServerEntry {
  return { command: PYTHON, args: ["-m", name, ...args] };
}

/** The path of a program in test/python. */
export function script(name: string): string {
  return `${PROGRAMS}${name}`;
}
