"""Words that several slices draw from. The lists are long enough that both sides of the split get some."""

from __future__ import annotations

COMMON = (
    "apple", "book", "bread", "bridge", "butter", "candle", "car", "cat", "chair", "cloud", "code", "cup", "desk",
    "dog", "door", "dust", "earth", "field", "fire", "fish", "flag", "flower", "forest", "friend", "garden", "glass",
    "grass", "hand", "hat", "hill", "horse", "house", "island", "key", "lamp", "leaf", "letter", "light", "line",
    "list", "lock", "map", "milk", "mirror", "money", "moon", "mountain", "music", "name", "night", "number", "ocean",
    "page", "paint", "paper", "path", "pen", "phone", "picture", "plant", "plate", "queue", "rain", "river", "road",
    "rock", "room", "salt", "sand", "school", "sea", "ship", "shoe", "sky", "snow", "song", "space", "star", "stone",
    "story", "street", "sun", "table", "time", "token", "tool", "train", "tree", "wall", "water", "wheel", "wind",
    "window", "winter", "wood", "word", "world", "year",
)  # fmt: skip
NAMES = (
    "Alice", "Anna", "Ben", "Bob", "Carla", "Clara", "Dan", "David", "Emma", "Eva", "Felix", "Frank", "Gina", "Grace",
    "Henry", "Hugo", "Ira", "Iris", "Ivy", "Jack", "Jonas", "Karl", "Kate", "Lena", "Leo", "Maria", "Max", "Nina",
    "Noah", "Olga", "Otto", "Paul", "Quinn", "Rosa", "Sam", "Tina", "Tom", "Uma", "Victor", "Wendy", "Yara", "Zoe",
)  # fmt: skip
CITIES = (
    "Paris", "Berlin", "Madrid", "Rome", "Lisbon", "Vienna", "Warsaw", "Oslo", "Stockholm", "Helsinki", "Copenhagen",
    "Athens", "Dublin", "Budapest", "Brussels", "Ankara", "Moscow", "Kyiv", "Tokyo", "Beijing", "Delhi", "Tehran",
    "Baghdad", "Bangkok", "Cairo", "Nairobi", "Ottawa", "Havana", "Lima", "Santiago",
)  # fmt: skip
GROUPS = {
    "animals": ("cat", "dog", "horse", "cow", "fish", "bird", "hen", "bee", "ant", "spider", "sheep", "pig", "mouse"),
    "colours": ("red", "blue", "green", "yellow", "black", "white", "brown", "orange", "pink", "grey", "purple"),
    "fruits": ("apple", "banana", "lemon", "orange", "pear", "plum", "cherry", "grape", "melon", "peach"),
    "days of the week": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "countries": ("France", "Germany", "Spain", "Italy", "Poland", "Norway", "Japan", "China", "India", "Canada"),
    "cities": ("Paris", "Berlin", "Madrid", "Rome", "Vienna", "Oslo", "Tokyo", "Cairo", "Lima", "Dublin"),
    "months": ("January", "March", "April", "May", "June", "July", "August", "October", "November", "December"),
    "numbers": ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
}  # fmt: skip
NUMBER_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
