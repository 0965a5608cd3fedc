import { HubError } from "../../base/errors.ts";
import { runtimeName } from "../../base/runtime.ts";

/**
 * Explains why a connection failed. The patterns match error codes and messages of the operating system, OpenSSL,
 * BoringSSL and rustls. Deno reports the same error for every certificate that is not trusted.
 */
export function connectErrorOf(error: Error, url: URL): HubError {
  const { code } = error as { code?: unknown };
  const { host } = url;
  const text = `${typeof code === "string" ? code : ""} ${error.message}`;
  const problem = CONNECT_PROBLEMS.find(({ pattern }) => pattern.test(text));
  if (problem !== undefined) {
    return new HubError(problem.code, problem.describe(host), { step: "dial", cause: error });
  }
  const isTlsError = url.protocol === "https:" && /SSL|TLS|CERT/i.test(text);
  const message = `${host} cannot be connected to: ${error.message}.`;
  return new HubError(isTlsError ? "tlsFailed" : "unreachable", message, {
    step: "dial",
    cause: error,
  });
}

interface ConnectProblem {
  readonly pattern: RegExp;
  readonly code: "unreachable" | "tlsFailed";
  describe(host: string): string;
}

const TRUST_ADVICE = `name the certificate of who issued it ("ca" in the manifest, or NODE_EXTRA_CA_CERTS)`;

const CONNECT_PROBLEMS: readonly ConnectProblem[] = [
  {
    pattern: /CERT_HAS_EXPIRED|certificate has expired|peer certificate: Expired/i,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} has expired: its operator has to renew it.`,
  },
  {
    pattern: /CERT_NOT_YET_VALID|NotValidYet|not yet valid/i,
    code: "tlsFailed",
    describe: (host) =>
      `The certificate of ${host} is not valid yet: is this machine's clock right?`,
  },
  {
    pattern: /ALTNAME_INVALID|HOSTNAME_MISMATCH|NotValidForName|certificate not valid for name/i,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} is for another name: is the URL right?`,
  },
  {
    pattern: /DEPTH_ZERO_SELF_SIGNED|SELF_SIGNED_CERT_IN_CHAIN|self[- ]signed/i,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} is self-signed: to trust it, ${TRUST_ADVICE}.`,
  },
  {
    pattern: /UNABLE_TO_(?:VERIFY|GET_ISSUER)|UnknownIssuer|unable to (?:verify|get)/i,
    code: "tlsFailed",
    describe: (host) =>
      runtimeName === "deno"
        ? `The certificate of ${host} is not trusted. It may have expired, or be of nobody whom this machine trusts: then ${TRUST_ADVICE}.`
        : `The certificate of ${host} is of nobody whom this machine trusts: ${TRUST_ADVICE}.`,
  },
  {
    pattern: /CERT_REVOKED|Revoked/,
    code: "tlsFailed",
    describe: (host) => `The certificate of ${host} was revoked.`,
  },
  {
    pattern:
      /WRONG_VERSION_NUMBER|packet length too long|InvalidContentType|HTTP_REQUEST|corrupt message|ERR_SSL_PACKET_LENGTH/i,
    code: "tlsFailed",
    describe: (host) =>
      `${host} does not speak TLS there: has the URL to begin with http:// instead?`,
  },
  {
    pattern: /ALERT_CERTIFICATE_REQUIRED|CertificateRequired|BAD_CERTIFICATE/i,
    code: "tlsFailed",
    describe: (host) => `${host} wants to see a certificate of the hub's, which it has not got.`,
  },
  {
    pattern:
      /ALERT_PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|ProtocolVersion|NO_SHARED_CIPHER|HANDSHAKE_FAILURE/i,
    code: "tlsFailed",
    describe: (host) => `${host} and the hub have no version of TLS in common.`,
  },
  {
    pattern: /ECONNREFUSED|Connection refused/i,
    code: "unreachable",
    describe: (host) => `Nothing listens at ${host} (connection refused): does the server run?`,
  },
  {
    pattern: /ENOTFOUND|ENODATA|EAI_NONAME|ENONAME|Name or service not known|failed to lookup/i,
    code: "unreachable",
    describe: (host) => `There is no host of the name in ${host} (DNS): is the URL right?`,
  },
  {
    pattern: /EAI_AGAIN|Temporary failure/i,
    code: "unreachable",
    describe: (host) => `The name in ${host} cannot be looked up (DNS): is this machine online?`,
  },
  {
    pattern: /EHOSTUNREACH|ENETUNREACH|ENETDOWN|unreachable/i,
    code: "unreachable",
    describe: (host) => `There is no way to ${host} from here: is this machine online?`,
  },
  {
    pattern: /ETIMEDOUT|timed out/i,
    code: "unreachable",
    describe: (host) => `${host} does not answer (timed out).`,
  },
  {
    pattern: /EMFILE|ENFILE/,
    code: "unreachable",
    describe: (host) => `${host} cannot be connected to: too many files are open (ulimit -n).`,
  },
];
