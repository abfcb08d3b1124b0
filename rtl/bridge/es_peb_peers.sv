// Peer table: the nodes that may have the Function. Without any entry every node may.
//
// An entry is written at the end of the clock in which `write` is high. `may` is about the `peer` of the clock before.
module es_peb_peers #(
    parameter int PEERS = 4  // entries, 1 to 256
) (
    input wire clk,
    input wire rst,

    input wire [  7:0] index,  // below PEERS
    input wire [127:0] node,
    input wire         valid,  // 0: the entry is taken out
    input wire         write,

    input  wire  [127:0] peer,
    output logic         may
);
  if (PEERS < 1 || PEERS > 256) begin : gen_check
    $error("es_peb_peers: PEERS is not 1 to 256");
  end

  logic [127:0] nodes[PEERS];
  logic [PEERS-1:0] filled, same;

  always_comb for (int i = 0; i < PEERS; i++) same[i] = filled[i] && nodes[i] == peer;

  always_ff @(posedge clk) begin
    for (int i = 0; i < PEERS; i++) begin
      if (write && index == 8'(i)) begin
        nodes[i]  <= node;
        filled[i] <= valid;
      end
    end
    may <= filled == '0 || same != '0;
    if (rst) filled <= '0;
  end
endmodule
