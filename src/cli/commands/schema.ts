/**
 * `toolmux schema`: prints the JSON Schema of the manifest, which is generated from the manifest's own schema when
 * toolmux is built.
 */
export async function schema(): Promise<number> {
  const { default: document } = await import("../../../toolmux.schema.json", {
    with: { type: "json" },
  });
  console.log(JSON.stringify(document, null, 2));
  return 0;
}
