/**
 * `node --import ./test/node/resolve.mjs`: lets Node run the sources. tsconfig.json and deno.json lead the name below to the
 * same file; Node reads neither.
 */
import { registerHooks } from "node:module";

const FILES = { "@std/cli/parse-args": "../../src/cli/deno-parse-args.ts" };

registerHooks({
  resolve(specifier, context, nextResolve) {
    const file = FILES[specifier];
    return file === undefined
      ? nextResolve(specifier, context)
      : { url: new URL(file, import.meta.url).href, shortCircuit: true };
  },
});
