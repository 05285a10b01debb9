// The bytes of a module of leapgate's, for its `init`.
export async function bytesOf(url) {
  const response = await fetch(url).catch(() => undefined);
  if (response?.ok) return response.arrayBuffer();
  throw new Error(`its module has not arrived (${response?.status ?? 'no connection'}); load the page again.`);
}
