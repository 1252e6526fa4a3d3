export function SignIn() {
  return <p>Soon.</p>;
}
