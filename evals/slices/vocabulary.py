"""Words that several slices draw from. The lists are long enough that both sides of the split get some."""

from __future__ import annotations

# None of them is a word that an answer itself is made of ("the first word is ..."): it could not be told apart.
COMMON = tuple(
    """
    able above account action active add address again age agent air alarm album alphabet amount angle animal answer
    apple arch area argument arm army array art aunt author autumn baby back bag ball band bank bar base basket bath
    battery beach bean bear beauty bed bell bench bird birth block blood board boat body bone book border bottle
    bottom bowl box boy brain branch bread bridge brush bucket buffer builder bus butter button cable cake call
    camera camp candle canvas cap captain car card care castle cat cause cell center chain chair chance change
    channel chapter check cheese child choice circle class clock cloth cloud coach coal coast coat code coffee coin
    cold color column command common compile computer config connect contact content control cook copy corn corner
    cost cotton country course cover cow cream crowd crown culture cup current curve custom cycle damage dance data
    date day deal debug decide default degree delete depth design desk detail device digit dinner direct display
    doctor dog dollar door dot down draft dragon drawing dream dress drink drive drum duck dust ear earth east edge
    edit effect egg element empty encode end energy engine entry error escape event example exit export eye face
    factor family farm fast father feature feed feel field file fill film filter find finger fire fish flag flat
    flight float floor flow flower folder food foot force forest form format frame free friend front fruit full
    function future game garden gas gate gift girl glass glue goal gold grain grape grass gray green ground group
    growth guard guest guide gun hair half hall hammer hand harbor hat head health heart heat height help hen hill
    hint history hole home honey hook hope horse hotel hour house human ice idea image import inch index ink input
    insect inside iron island join joke judge juice jump key kitchen knee knife knot label lake lamp land language
    law layer lead leaf leather left leg lemon length lesson letter level library life light limit line link lion
    lip load local lock loop lunch machine magic mail main manager map mark market mask match matrix meal meaning
    measure meat member memory menu message metal method middle mile milk mind minute mirror mode model moment money
    monkey month moon morning mother motor mountain mouse mouth move museum music nail native neck needle nest net
    news night noise normal north nose note object ocean offer office oil onion open option orange order output oven
    owner pack page pain paint pair palace pan paper parent park part party pass past patch path pattern peace pen
    pencil people pepper percent person phone piano picture piece pilot pin pipe plan plane plant plastic plate
    pocket poem poet point policy pool port post potato pound power present price print prize problem process
    product profile program project prompt proof pump pupil purple push queen question queue quick quiet quote race
    radio rail rain range rate reader real reason record red region remove render repair reply report rest result
    return rice right ring rise river road robot rock role roof room root rope rose round route row rule run safe
    sail salt sample sand sauce scale scene school science screen script sea search season seat secret section seed
    select send sense series server session set shadow shape share sheep sheet shelf shell ship shirt shock shoe
    shop short shoulder side sign signal silk silver sister size skill skin sky sleep smile smoke snake snow soap
    soccer socket soil soldier song sound soup source south space speech speed spider spirit spoon sport spring
    square stack stage stamp star start state station steam steel stem step stick stomach stone stop storm story
    stream street string student study style sugar suit summer sun surface sweet swim switch symbol system table
    tail target task taste tax teacher team temple test text thread throat thumb thunder ticket tiger time tin title
    toast today toe token tongue tool tooth topic touch tower town toy track trade train travel tree trick trip
    truck trunk trust truth tube tune turn twin type uncle unit update upper user valley value vector version video
    view village voice volume wagon waist walk wall warm watch water wave weather web week weight west wheel white
    wife wind window wing winner winter wire wolf woman wonder wood wool work worker world wrap writer yard year
    yellow young zero zone
    """.split()  # noqa: SIM905  (seven hundred quoted words cannot be read)
)
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
