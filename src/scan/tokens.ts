/** A range of UTF-16 units. */
interface Range {
  readonly start: number;
  readonly end: number;
}

const SECRETS =
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{60,255}|\bsk-(?:ant-|proj-|live-)?[A-Za-z0-9_-]{24,200}|\bxox[abprs]-[A-Za-z0-9-]{20,200}|\bAIza[A-Za-z0-9_-]{35}\b|\bglpat-[A-Za-z0-9_-]{20,64}|\b[rs]k_live_[A-Za-z0-9]{20,200}|\bnpm_[A-Za-z0-9]{36}\b|\beyJ[A-Za-z0-9_-]{15,2000}\.eyJ[A-Za-z0-9_-]{15,4000}\.[A-Za-z0-9_-]{10,1000}|-----BEGIN (?:[A-Z]{1,12} ){0,2}PRIVATE KEY-----/g;
/** Keys that are made up: in documentation, digits and letters in their order, or one of them again and again. */
const MADE_UP = /example|x{6,}|\*{3,}|0{6,}|1234567|abcdef|your|placeholder|redacted|\.\.\./i;

/** Finds the first key or token, by the forms that their services give them. */
export function findSecret(text: string): Range | undefined {
  for (const match of text.matchAll(SECRETS)) {
    if (MADE_UP.test(match[0])) continue;
    return { start: match.index, end: match.index + match[0].length };
  }
  return undefined;
}

/** Masks all but the first characters of keys and tokens. */
export function maskSecrets(text: string): string {
  return (
    text
      .replace(SECRETS, (secret) => `${secret.slice(0, 4)}***`)
      .replace(
        /\b((?:api[_-]?key|token|password|secret)["']?\s?[=:]\s?["']?)[^\s"',;]{12,}/gi,
        "$1***",
      )
      // The rest of a block, and a token that the excerpt cuts.
      .replace(/(-----BEG\*\*\*)[\s\S]*/, "$1")
      .replace(
        /\b(?:gh[pousr]_|sk-|xox[abprs]-|AKIA|ASIA|AIza|glpat-|npm_|github_pat_)[A-Za-z0-9_-]{6,}/g,
        (secret) => `${secret.slice(0, 4)}***`,
      )
  );
}

const HOSTS =
  /\bhttps?:\/\/(?:[\w.-]{0,80}\.)?(?:webhook\.site|requestbin\.(?:com|net)|pipedream\.net|ngrok(?:-free)?\.(?:io|app|dev)|burpcollaborator\.net|oastify\.com|oast\.(?:pro|live|fun|me|site|online)|interact\.sh|canarytokens\.com|beeceptor\.com|hookb\.in|trycloudflare\.com|serveo\.net|localtunnel\.me|dnslog\.cn|pastebin\.com|transfer\.sh|file\.io|discord(?:app)?\.com\/api\/webhooks|hooks\.slack\.com\/services\/T[A-Z0-9]{6,12}\/B[A-Z0-9]{6,12}|api\.telegram\.org\/bot\d+)\b/gi;
const ADDRESSES = /\bhttps?:\/\/(\d{1,3}(?:\.\d{1,3}){3})(?::\d{1,5})?\b/gi;
/** Addresses of this machine, of private networks and of documentation. */
const LOCAL =
  /^(?:0\.|10\.|127\.|169\.254\.|172\.(?:1[6-9]|2\d|3[01])\.|192\.168\.|192\.0\.2\.|198\.51\.100\.|203\.0\.113\.|1\.2\.3\.4|1\.1\.1\.1|8\.8\.8\.8|255\.)/;
/** Markup by which a client that shows it sends what the model fills in. */
const FILLED = /!\[[^\]\n]{0,80}\]\(https?:\/\/[^)\s]{1,200}[?&][^)\s=]{1,40}=(?:\{|\$\{|<|\[)/g;

/** Finds the first address that collects what is sent to it. */
export function findCollector(text: string): Range | undefined {
  if (!text.includes("://")) return undefined;
  for (const pattern of [HOSTS, ADDRESSES, FILLED]) {
    for (const match of text.matchAll(pattern)) {
      if (match[1] !== undefined && LOCAL.test(match[1])) continue;
      return { start: match.index, end: match.index + match[0].length };
    }
  }
  return undefined;
}
