import { type ExternalServer, isExternal, type ServerSpec } from "./manifest.ts";

/**
 * Splits a command into words, for `${cmd:…}`. No shell is involved: white space separates words; '…' is literal; in
 * "…", \" and \\ are escapes; outside of quotes, a backslash escapes the next character. No other character is special.
 * @returns undefined if a quote is not closed, or there is no word
 */
export function splitCommand(text: string): readonly [string, ...string[]] | undefined {
  const words: string[] = [];
  const token = /\s+|'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)/y;
  let word: string | undefined;
  for (let at = 0; at < text.length; at = token.lastIndex) {
    token.lastIndex = at;
    const found = token.exec(text);
    if (found === null) return undefined;
    const [whole, single, double, escaped, unquoted] = found;
    const piece = single ?? double?.replace(/\\(["\\])/g, "$1") ?? escaped ?? unquoted;
    if (piece !== undefined) word = (word ?? "") + piece;
    else if (/^\s/.test(whole) && word !== undefined) {
      words.push(word);
      word = undefined;
    }
  }
  if (word !== undefined) words.push(word);
  const [first, ...others] = words;
  return first === undefined || first === "" ? undefined : [first, ...others];
}

/** The syntax of placeholders: that of manifests, or that of MCP clients (`client`). */
export type TemplateSyntax = "toolmux" | "client";

export type TemplatePart =
  | { readonly kind: "text"; readonly text: string }
  /** `fallback` is used if the variable is unset or empty. */
  | { readonly kind: "env"; readonly name: string; readonly fallback: string | undefined }
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "placeholder"; readonly place: ClientPlaceholders }
  /** A placeholder of a secret, a command or a plugin; `path` is the text after the colon. */
  | { readonly kind: "scheme"; readonly scheme: string; readonly path: string }
  /** `message` does not quote the text, which may contain a secret. */
  | { readonly kind: "invalid"; readonly message: string };

/** Placeholders for the workspace and the machine. `workspaceFolder` is the hub's working directory. */
export type ClientPlaceholders =
  "workspaceFolder" | "workspaceFolderBasename" | "userHome" | "pathSeparator";

const CLIENT_PLACEHOLDERS: ReadonlyMap<string, ClientPlaceholders> = new Map([
  ["workspaceFolder", "workspaceFolder"],
  ["workspaceFolderBasename", "workspaceFolderBasename"],
  ["userHome", "userHome"],
  ["pathSeparator", "pathSeparator"],
  ["/", "pathSeparator"],
]);

/**
 * Splits a text at its `${…}`. Resolved values are not parsed again, so a value that looks like a placeholder stays as
 * it is. In manifests, `$${` is a literal `${`.
 */
export function parseTemplate(text: string, syntax: TemplateSyntax): readonly TemplatePart[] {
  const parts: TemplatePart[] = [];
  let from = 0;
  while (from < text.length) {
    const open = text.indexOf("${", from);
    if (open < 0) break;
    if (syntax === "toolmux" && text[open - 1] === "$") {
      parts.push({ kind: "text", text: `${text.slice(from, open - 1)}\${` });
      from = open + 2;
      continue;
    }
    if (open > from) parts.push({ kind: "text", text: text.slice(from, open) });
    const close = text.indexOf("}", open);
    if (close < 0) return [...parts, { kind: "invalid", message: "a ${ without a closing }" }];
    parts.push(parsePlaceholder(text.slice(open + 2, close), syntax));
    from = close + 1;
  }
  if (from < text.length) parts.push({ kind: "text", text: text.slice(from) });
  return parts;
}

/** The built-in placeholders, for messages. */
const PLACEHOLDER_FORMS: Readonly<Record<TemplateSyntax, string>> = {
  toolmux: "${env:NAME}, ${file:PATH}, ${secret:NAME} and ${cmd:COMMAND}",
  client: "${env:NAME} and ${file:PATH}",
};

const NAME = /^[^\s:=${}]+$/;
const SCHEME = /^[a-z][a-z0-9+.-]*$/;

/** The message for a placeholder whose scheme is unknown. */
export function unknownSchemeMessage(scheme: string, syntax: TemplateSyntax = "toolmux"): string {
  return `the unknown placeholder \${${scheme}:…}; known placeholders: ${PLACEHOLDER_FORMS[syntax]}`;
}

function unknownPlaceholderMessage(syntax: TemplateSyntax): string {
  return `an unknown placeholder; known placeholders: ${PLACEHOLDER_FORMS[syntax]}`;
}

function parsePlaceholder(body: string, syntax: TemplateSyntax): TemplatePart {
  // Manifests have `${workspaceFolder}` too, as the only way to refer to the hub's working directory.
  const isKnown = syntax === "client" || body === "workspaceFolder";
  const place = isKnown ? CLIENT_PLACEHOLDERS.get(body) : undefined;
  if (place !== undefined) return { kind: "placeholder", place };
  if (body.includes("${")) return invalidPart("a ${…} inside another ${…}, which is not supported");
  const colon = body.indexOf(":");
  const scheme = colon < 0 || body.startsWith(":-", colon) ? undefined : body.slice(0, colon);
  const rest = scheme === undefined ? body : body.slice(colon + 1);
  switch (scheme) {
    case undefined:
      return syntax === "client" ? parseVariable(rest) : bareVariableFault(rest);
    case "env":
      return parseVariable(rest);
    case "file":
      return rest === "" ? invalidPart("${file:} without a path") : { kind: "file", path: rest };
    case "input":
      return invalidPart(
        "${input:…}, which only editors support; set an environment variable and write ${env:NAME}",
      );
    default:
      return parseScheme(scheme, rest, syntax);
  }
}

function parseScheme(scheme: string, path: string, syntax: TemplateSyntax): TemplatePart {
  if (syntax === "toolmux" && path === "" && BUILT_IN_SCHEMES.has(scheme)) {
    return invalidPart(`\${${scheme}:} without ${scheme === "secret" ? "a name" : "a command"}`);
  }
  if (syntax === "toolmux" && scheme === "secret" && !SECRET_NAME.test(path)) {
    return invalidPart(
      "${secret:…} with an invalid name; a name may have letters, digits, _, -, . and /",
    );
  }
  if (syntax === "toolmux" && scheme === "cmd" && splitCommand(path) === undefined) {
    return invalidPart("${cmd:…} with a quote that is not closed");
  }
  if (syntax === "toolmux" && SCHEME.test(scheme)) return { kind: "scheme", scheme, path };
  return invalidPart(
    NAME.test(scheme) ? unknownSchemeMessage(scheme, syntax) : unknownPlaceholderMessage(syntax),
  );
}

/** Valid names of secrets. */
export const SECRET_NAME = /^[\w./-]{1,200}$/;

/** Schemes that the hub resolves without a plugin. */
export const BUILT_IN_SCHEMES: ReadonlySet<string> = new Set(["secret", "cmd"]);

function parseVariable(body: string): TemplatePart {
  const separator = body.indexOf(":-");
  const name = separator < 0 ? body : body.slice(0, separator);
  if (!NAME.test(name)) return invalidPart("a ${…} without a variable name");
  return { kind: "env", name, fallback: separator < 0 ? undefined : body.slice(separator + 2) };
}

function bareVariableFault(body: string): TemplatePart {
  const [name = ""] = body.split(":-", 1);
  return NAME.test(name)
    ? invalidPart(`\${${name}}; write \${env:${name}}, or $\${${name}} for this text itself`)
    : invalidPart(unknownPlaceholderMessage("toolmux"));
}

function invalidPart(message: string): TemplatePart {
  return { kind: "invalid", message };
}

/** All template parts in the texts of a server. */
export function templatePartsOf(server: ExternalServer): readonly TemplatePart[] {
  return templateTextsOf(server).flatMap((text) => parseTemplate(text, server.syntax));
}

/** The texts of a server that may hold placeholders. */
export function templateTextsOf(server: ExternalServer): readonly string[] {
  if (server.kind === "stdio") {
    const { command, args, env, cwd } = server;
    return [command, ...args, ...Object.values(env), ...(cwd === undefined ? [] : [cwd])];
  }
  const { url, headers, keyFile, ca, oauth } = server;
  const texts = [url, ...Object.values(headers), keyFile, ca, ...Object.values(oauth).flat()];
  return texts.filter((text) => typeof text === "string");
}

/** Matches shell variables such as `$HOME`, but not `${HOME}` or `$$HOME`. */
const SHELL_VARIABLE = /(?<![$\w\\])\$([A-Z][A-Z0-9_]*)(?!\w)/g;
const SHELL = /(?:^|\/)(?:ba|da|z|k|fi)?sh$/;

/**
 * A note about shell variables such as `$HOME` in a server's texts, because they are not replaced. A name counts only
 * if it is set in `env` or if `$NAME` is the whole text: any other `$` may be part of a password.
 */
export function describeShellVariables(
  server: ExternalServer,
  env: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  const isShell = server.kind === "stdio" && SHELL.test(server.command);
  const texts =
    server.kind === "stdio" && isShell
      ? [...Object.values(server.env), server.cwd ?? ""]
      : templateTextsOf(server);
  const names = texts.flatMap((text) =>
    [...text.matchAll(SHELL_VARIABLE)].flatMap(([, name = ""]) =>
      env[name] !== undefined || text === `$${name}` ? [name] : [],
    ),
  );
  if (names.length === 0) return [];
  const unique = [...new Set(names)];
  const found = unique.map((name) => `$${name}`).join(", ");
  const forms = unique.map((name) => `\${env:${name}}`).join(", ");
  const verb = unique.length === 1 ? "is" : "are";
  return [`server ${JSON.stringify(server.name)}: ${found} ${verb} not replaced: write ${forms}`];
}

/** The names of the secrets that a server needs, without duplicates. */
export function listSecrets(server: ExternalServer): readonly string[] {
  const names = templatePartsOf(server).flatMap((part) =>
    part.kind === "scheme" && part.scheme === "secret" ? [part.path] : [],
  );
  return [...new Set(names)];
}

/**
 * The placeholders in the command line of a server whose values are secrets: `${secret:…}`, and the schemes of plugins.
 * Other programs and users can read the command line of a running process.
 */
export function secretsInCommandLine(server: ServerSpec): readonly string[] {
  if (server.kind !== "stdio") return [];
  const parts = [server.command, ...server.args].flatMap((text) =>
    parseTemplate(text, server.syntax),
  );
  const found = parts.flatMap((part) =>
    part.kind === "scheme" ? [`\${${part.scheme}:${part.path}}`] : [],
  );
  return [...new Set(found)];
}

/** The names of the secrets that a server of any kind uses; of an invalid server, those that its table mentions. */
export function secretsOf(spec: ServerSpec): readonly string[] {
  if (spec.kind === "invalid") return spec.secrets;
  return isExternal(spec) ? listSecrets(spec) : [];
}

/** The names in all `${secret:NAME}` placeholders of a value that was not validated. */
export function secretsMentionedIn(value: unknown): readonly string[] {
  if (typeof value === "string")
    return [...value.matchAll(/\$\{secret:([^}]*)\}/g)].map(([, name = ""]) => name);
  if (typeof value !== "object" || value === null) return [];
  return [...new Set(Object.values(value).flatMap(secretsMentionedIn))];
}

/** The schemes that only plugins can resolve for a server, without duplicates. */
export function listSchemes(server: ExternalServer): readonly string[] {
  const schemes = templatePartsOf(server).flatMap((part) =>
    part.kind === "scheme" ? [part.scheme] : [],
  );
  return [...new Set(schemes)].filter((scheme) => !BUILT_IN_SCHEMES.has(scheme));
}
