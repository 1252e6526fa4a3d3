"""Check digits and addresses: whether a text can be what it says it is."""

from __future__ import annotations


def luhn_digit(digits: str) -> str:
    """The digit that makes a number valid by Luhn's rule when it is added to its end."""
    total = 0
    for at, digit in enumerate(reversed(digits)):
        value = int(digit)
        if at % 2 == 0:
            value *= 2
            if value > 9:
                value -= 9
        total += value
    return str(-total % 10)


def is_luhn(number: str) -> bool:
    """Whether a number, in which spaces do not count, is valid by Luhn's rule."""
    digits = number.replace(" ", "")
    if len(digits) < 2 or not digits.isdigit():
        return False
    return luhn_digit(digits[:-1]) == digits[-1]


def is_isbn(text: str) -> bool:
    """Whether a text is an ISBN of 13 digits, with or without hyphens."""
    digits = text.replace("-", "")
    if len(digits) != 13 or not digits.isdigit():
        return False
    weighted = sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(digits))
    return weighted % 10 == 0


def old_isbn_digit(digits: str) -> str:
    """The check digit of an ISBN of ten, by its first nine."""
    total = 0
    for at, digit in enumerate(digits):
        total += int(digit) * (10 - at)
    check = -total % 11
    return "X" if check == 10 else str(check)


def is_iban(text: str) -> bool:
    """Whether an account number's check digits are right; spaces do not count."""
    account = text.replace(" ", "").upper()
    if not 15 <= len(account) <= 34 or not account.isalnum():
        return False
    moved = account[4:] + account[:4]
    number = "".join(str(int(character, 36)) for character in moved)
    return int(number) % 97 == 1


def address_number(address: str) -> int:
    """The 32 bits of an IPv4 address. Raises ValueError for any other text."""
    parts = address.split(".")
    if len(parts) != 4:
        raise ValueError(f"{address!r} is no address")
    number = 0
    for part in parts:
        if not part.isdigit() or int(part) > 255 or part != str(int(part)):
            raise ValueError(f"{address!r} is no address")
        number = number * 256 + int(part)
    return number


def in_network(address: str, network: str) -> bool:
    """Whether an address is in a network such as `10.0.0.0/8`."""
    base, _, length = network.partition("/")
    free_bits = 32 - int(length)
    return address_number(address) >> free_bits == address_number(base) >> free_bits
