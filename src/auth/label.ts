/** The names under which things are kept: readable, and made of what every store takes. */
export async function storeName(
  kind: "server" | "client",
  ...key: readonly string[]
): Promise<string> {
  const [first = ""] = key;
  const readable = first
    .replace(/^https?:\/\//, "")
    .replace(/[^\w.-]+/g, "-")
    .slice(0, 40);
  const bytes = new TextEncoder().encode(key.join("\0"));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const mark = [...digest.subarray(0, 8)].map((it) => it.toString(16).padStart(2, "0")).join("");
  return `oauth/${kind}/${readable}-${mark}`;
}

/** @returns undefined if it is no object of JSON */
export function parseObject(text: string | undefined): object | undefined {
  if (text === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
