/** Where the key of this installation is: in the state folder, 32 random bytes as hex digits, and a line end. */
export function installationKeyPath(folder: string): string {
  return `${folder}/installation.key`;
}
