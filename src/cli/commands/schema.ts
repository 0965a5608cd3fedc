import type { CommandContext, Invocation } from "../command.ts";

/** `toolmux schema`: prints the JSON Schema of the manifest, a file that `npm run docs` generates. */
export async function schema(_: Invocation, { terminal }: CommandContext): Promise<number> {
  const { default: document } = await import("../../../toolmux.schema.json", {
    with: { type: "json" },
  });
  terminal.print(JSON.stringify(document, null, 2));
  return 0;
}
