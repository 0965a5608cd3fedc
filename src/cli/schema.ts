/** Prints the JSON Schema of the manifest. It is made from the manifest's own schema when toolmux is built, not here. */
export async function printSchema(): Promise<number> {
  const { default: schema } = await import("../../toolmux.schema.json", {
    with: { type: "json" },
  });
  console.log(JSON.stringify(schema, null, 2));
  return 0;
}
