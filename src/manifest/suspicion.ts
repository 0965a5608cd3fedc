/* What looks like a secret, where nobody says whether it is one. */

/** What an option, variable or header is called whose value nobody should see. */
const TELLING = /key|token|secret|pass|credential|auth|bearer/i;
/** What is called so by accident: it says where a secret is, or how one is used. */
const HARMLESS = /(?:path|file|dir|url|uri|host|port|id|name|type|mode|method)$/i;
/** Long, without a word or a path in it, and with digits: looks like a key whatever it is called. */
const RANDOM = /^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_+=-]{20,}$/;
/** The path of a file, such as that of a key. */
const FILE = /^(?:~|\.{1,2})?\/(?:[\w.@ -]+\/)*[\w@. -]+\.\w{2,5}$/;
/** Shorter values (`1`, `true`, `warn`) are none. */
const LEAST = 6;

/** Whether the name says that the value should not be shown. */
export function isTelling(name: string): boolean {
  return TELLING.test(name);
}

/** Whether the value looks like a key, whatever it is called. */
export function isRandom(value: string): boolean {
  return RANDOM.test(value);
}

/** Whether a value that stands somewhere as it is looks like a secret: by its name, or by itself. */
export function isSuspect(name: string, value: string): boolean {
  if (value.length < LEAST) return false;
  return isRandom(value) || (isTelling(name) && !HARMLESS.test(name) && !FILE.test(value));
}
