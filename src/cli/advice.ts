import type { HubError } from "../base/errors.ts";
import type { RemoteServer, RunnableServer } from "../manifest/schema.ts";
import { formatDuration, formatSize } from "../terminal/terminal.ts";

/**
 * What a person can do about a server over HTTP that is not there: whole sentences, what is most likely to help first; empty
 * if nothing is known.
 */
export function remoteHintsFor(error: HubError, spec: RemoteServer): readonly string[] {
  const { name, transport } = spec;
  switch (error.code) {
    case "unreachable":
      return [
        "Make sure that the server runs and that its url is right (host and port).",
        "If this machine reaches the network through a proxy, set HTTPS_PROXY where toolmux is started (NO_PROXY: hosts that are reached without).",
      ];
    case "tlsFailed":
      return [
        "If its certificate is of an authority of your own, name that one's file in the manifest (ca), or in NODE_EXTRA_CA_CERTS.",
        "If the certificate has expired, or is for another host, only those who run the server can put that right.",
      ];
    case "serverRefused":
      if (error.step === "authorize") {
        return [
          "Compare oauth.clientId, and oauth.clientSecret or oauth.privateKey, with what its authorization server has of them.",
        ];
      }
      return [
        "Compare its url with the server's documentation: it ends in a path, often /mcp or /sse.",
        transport === "auto"
          ? "If it says that something is missing from the request, set that in headers."
          : `It is spoken to with transport = "${transport}" only: leave that out, and it is found out.`,
      ];
    case "serverFailed":
    case "answerLost":
    case "notDelivered":
    case "connectionLost":
      return [
        "The server, or something in front of it, is in trouble: its own log says more. It is tried again by itself.",
      ];
    case "unauthorized":
      return adviseOnAuthorization(spec);
    case "handshakeFailed":
      return error.step === "list"
        ? ["Its list is malformed or cannot be had: look for a newer version of the server."]
        : [
            "It may be something else than an MCP server, or one of a revision that toolmux does not speak: compare its url with its documentation.",
          ];
    case "connectTimeout":
      return [
        raiseLimit(spec),
        `It may be behind a firewall that answers nothing, or at another port: toolmux check shows its url.`,
      ];
    case "notReading":
    case "notResponding":
      return [
        `It is connected but does not answer: start it anew, or have ${name} looked at by whoever runs it.`,
      ];
    case "messageTooLarge":
      return [`Raise maxMessage for it in the manifest (now ${formatSize(spec.maxMessage)}).`];
    case "internal":
      return ["This is a mistake in toolmux. More of it: toolmux status --log-level debug"];
    default:
      return [];
  }
}

function adviseOnAuthorization({ name, auth, headers, keyFile }: RemoteServer): readonly string[] {
  const own = Object.keys(headers).find((key) => key.toLowerCase() === "authorization");
  if (own !== undefined) {
    return [
      `It does not accept what the manifest says in headers.${own}: put in one that is good.`,
    ];
  }
  const byKey =
    keyFile === undefined ? [] : ["If its key is good no longer, put another into the keyFile."];
  return auth === "none"
    ? [...byKey, `Authorization is switched off for it: take out auth = "none", or set headers.`]
    : [...byKey, `Authorize it: toolmux auth login ${name}`];
}

/** What a person can do about a server that needs more time to start than it has. */
export function raiseLimit({ connectTimeout, startLimit }: RunnableServer): string {
  return startLimit === undefined
    ? `Give it more time: raise connectTimeout for it in the manifest (now ${formatDuration(connectTimeout)}).`
    : `Give it more time: set connectTimeout for it in the manifest (without it a start is ended after ${formatDuration(startLimit)}).`;
}
