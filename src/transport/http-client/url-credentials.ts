import { Buffer } from "node:buffer";

/** The user and password in a URL as the value of a header (RFC 7617); undefined if it has none. */
export function basicAuthorization({ username, password }: URL): string | undefined {
  if (username === "" && password === "") return undefined;
  const text = `${decodePercent(username)}:${decodePercent(password)}`;
  return `Basic ${Buffer.from(text).toString("base64")}`;
}

/** The password in a URL, without percent escapes; "" if it has none. */
export function passwordOf({ password }: URL): string {
  return decodePercent(password);
}

/** Decodes percent escapes, and keeps a percent sign that begins none. */
function decodePercent(text: string): string {
  return text.replace(/(?:%[0-9a-f]{2})+/gi, (escapes) => {
    try {
      return decodeURIComponent(escapes);
    } catch {
      return escapes;
    }
  });
}
