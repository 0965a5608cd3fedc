import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { ServerEntry } from "./manifest.ts";
import { missingPrograms, skipWithout } from "./requirements.ts";

const ENVIRONMENT = fileURLToPath(new URL("../../dist/python", import.meta.url));
const SCRIPTS = fileURLToPath(new URL("../python/", import.meta.url));

/** The Python interpreter with the packages of test/python/requirements.txt. */
export const PYTHON = `${ENVIRONMENT}/bin/python`;

/** The `skip` option of tests that need Python. */
export const SKIP_WITHOUT_PYTHON = skipWithout({
  isMet: existsSync(`${ENVIRONMENT}/.toolmux-setup`) && missingPrograms(["git"]).length === 0,
  tests: "servers and clients in Python",
  remedy:
    "there is no git, or no dist/python (apt-get install git python3 python3-venv; then node scripts/python.mjs)",
});

const ENVIRONMENT_1 = fileURLToPath(new URL("../../dist/python1", import.meta.url));

/** The interpreter with the packages of test/python/requirements1.txt: the SDK's first major version. */
export const PYTHON_1 = `${ENVIRONMENT_1}/bin/python`;

export const SKIP_WITHOUT_PYTHON_1 = existsSync(`${ENVIRONMENT_1}/.toolmux-setup`)
  ? false
  : "scripts/python.mjs has made no Python environment with the SDK's first version";

/** A server that is a Python module. */
export function pythonModule(name: string, args: readonly string[] = []): ServerEntry {
  return { command: PYTHON, args: ["-m", name, ...args] };
}

/** The path of a program in test/python. */
export function pythonScript(name: string): string {
  return `${SCRIPTS}${name}`;
}
