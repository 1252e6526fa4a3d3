export function Welcome() {
  return <p>Soon.</p>;
}
